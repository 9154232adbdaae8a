"""Make the ``*_pb2`` modules from the .proto files: ``python wire/pb/generate.py [DIRECTORY]``.

Needs grpcio-tools. A generated module has the file's descriptor, and the protobuf runtime makes the
classes in a descriptor pool of its own. protoc's own output checks the version of the runtime and
warns or refuses, and it shares one pool with every other library that may define
BookkeeperProtocol.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
)

HERE: Final = Path(__file__).parent
PROTOS: Final = ("bookkeeper", "data_formats", "pulsar")

_LINE_CHARS: Final = 96
"""The longest literal in a line of a module."""

PYTHON_TYPES: Final = {
    FieldDescriptorProto.TYPE_STRING: "str",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_BOOL: "bool",
}
"""The types of fields that are neither messages nor integers (enums are integers here)."""


def main(directory: Path = HERE) -> None:
    """Write a module and its types into ``directory`` for each .proto file."""
    for name in PROTOS:
        file = compile_proto(name)
        (directory / f"{name}_pb2.py").write_text(module_text(name, file))
        (directory / f"{name}_pb2.pyi").write_text(types_text(name, file))


def compile_proto(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of ``name``.proto without the parts that the runtime derives."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "set")
        arguments = ["protoc", f"-I{HERE}", f"--descriptor_set_out={out}", f"{name}.proto"]
        if protoc.main(arguments):
            raise SystemExit(f"protoc refused {name}.proto")
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    (file,) = files.file
    for message in file.message_type:
        _drop_json_names(message)
    return file


def _drop_json_names(message: DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for inner in message.nested_type:
        _drop_json_names(inner)


def module_text(name: str, file: descriptor_pb2.FileDescriptorProto) -> str:
    """Return the module: the descriptor and one class for each top-level message."""
    data = file.SerializeToString()
    lines = [
        f'"""Generated from {name}.proto by wire/pb/generate.py; do not edit."""',
        "",
        "from google.protobuf import descriptor_pool, message_factory",
        "",
        "_POOL = descriptor_pool.DescriptorPool()",
        "_POOL.AddSerializedFile(",
        *(f"    {line!r}" for line in _lines(data)),
        ")",
        f'DESCRIPTOR = _POOL.FindFileByName("{name}.proto")',
        "",
        "",
        "def _message(name):",
        "    return message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])",
        "",
        "",
        *(f'{message.name} = _message("{message.name}")' for message in file.message_type),
    ]
    return "\n".join(lines) + "\n"


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield ``data`` in parts that fit a line of source."""
    while data:
        size = next(n for n in range(_LINE_CHARS, 0, -1) if len(repr(data[:n])) <= _LINE_CHARS)
        yield data[:size]
        data = data[size:]


def types_text(name: str, file: descriptor_pb2.FileDescriptorProto) -> str:
    """Return the types of the module; enums are plain integers, as they are at run time."""
    body = "\n".join(_message_types(message, f".{file.package}") for message in file.message_type)
    return (
        f"# Generated from {name}.proto by wire/pb/generate.py; do not edit.\n"
        "from collections.abc import Iterable, Mapping, MutableMapping\n"
        "from typing import ClassVar\n\n"
        "from google.protobuf.descriptor import FileDescriptor\n"
        "from google.protobuf.internal.containers import (\n"
        "    RepeatedCompositeFieldContainer,\n    RepeatedScalarFieldContainer,\n)\n"
        "from google.protobuf.message import Message\n\n"
        f"DESCRIPTOR: FileDescriptor\n\n{body}\n"
    )


def _message_types(message: DescriptorProto, package: str) -> str:
    inner = [m for m in message.nested_type if not m.options.map_entry]
    lines = [_message_types(m, package) for m in inner]
    lines += [_enum_types(enum) for enum in message.enum_type]
    arguments = []
    for field in message.field:
        attribute, argument = _field_types(field, message, package)
        lines.append(f"{field.name}: {attribute}")
        arguments.append(f"{field.name}: {argument} | None = ...")
    star = ", *, " if arguments else ""
    lines.append(f"def __init__(self{star}{', '.join(arguments)}) -> None: ...")
    return f"class {message.name}(Message):\n" + textwrap.indent("\n".join(lines), "    ")


def _enum_types(enum: EnumDescriptorProto) -> str:
    return "\n".join(f"{value.name}: ClassVar[int]" for value in enum.value)


def _field_types(
    field: FieldDescriptorProto, message: DescriptorProto, package: str
) -> tuple[str, str]:
    """Return the type of the attribute and of the constructor's argument."""
    if any(
        m.options.map_entry and field.type_name.endswith(f".{m.name}") for m in message.nested_type
    ):
        return "MutableMapping[str, str]", "Mapping[str, str]"
    is_message = field.type == FieldDescriptorProto.TYPE_MESSAGE
    kind = (
        field.type_name.removeprefix(f"{package}.")
        if is_message
        else PYTHON_TYPES.get(field.type, "int")
    )
    if field.label != FieldDescriptorProto.LABEL_REPEATED:
        return kind, kind
    container = "RepeatedCompositeFieldContainer" if is_message else "RepeatedScalarFieldContainer"
    return f"{container}[{kind}]", f"Iterable[{kind}]"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
