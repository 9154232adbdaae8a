"""The admin server as a part of the process: which port it takes, when, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.testing import StringTransport

from bookied.admin.server import AdminServer, RepairMetrics, TokenFileError
from bookied.errors import PortInUseError
from bookied.service.autorecovery import AutoRecoveryService
from tests.bookied.worlds.clock_world import FakeListener, World
from tests.bookied.worlds.fakes import done
from wire.ids import BookieId
from wire.records.bookie_service_info import Endpoint


def served(world: World) -> AdminServer:
    admin = AdminServer(world.service, version="1.2", config_warnings=3)
    admin.start()
    return admin


def fetch(world: World, address: tuple[str, int], path: str) -> str:
    return exchange(world, address, f"GET {path} HTTP/1.0\r\n\r\n")


def exchange(world: World, address: tuple[str, int], request: str) -> str:
    factory: Any = world.listener.others[address].factory
    protocol, transport = factory.buildProtocol(None), StringTransport()
    protocol.makeConnection(transport)
    protocol.dataReceived(request.encode())
    return transport.value().decode()


def test_it_answers_before_during_and_after_the_start_and_is_published(tmp_path: Path) -> None:
    world = World(tmp_path, http_enabled=True)
    admin = served(world)
    address = ("127.0.0.1", 8080)
    assert "503" in fetch(world, address, "/api/v1/bookie/is_ready")
    assert "bookie_SERVER_STATUS -1" in fetch(world, address, "/metrics")
    done(world.service.start())
    assert fetch(world, address, "/api/v1/bookie/is_ready").endswith("OK")
    page = fetch(world, address, "/metrics")
    assert "bookie_SERVER_STATUS 1\n" in page
    assert 'bookied_info{version="1.2",bookieId="b1",port="3181",state="writable"} 1' in page
    assert "bookied_config_warnings 3" in page
    for window in ("last", "current"):
        assert f'bookied_latency_requests{{operation="ADD_ENTRY",window="{window}"}} 0\n' in page
    assert "bookied_latency_window_age_seconds 0" in page
    info = done(world.store.service_info(BookieId("b1")))
    assert Endpoint("httpserver", 8080, "127.0.0.1", "http") in info.endpoints
    world.stop()
    done(admin.close())
    assert world.listener.others[address].factory is None


def test_metrics_have_a_port_of_their_own_where_that_is_all_that_is_wanted(tmp_path: Path) -> None:
    provider = "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"
    world = World(tmp_path, stats_provider=provider)
    admin = served(world)
    address = ("127.0.0.1", 8000)
    assert "bookie_SERVER_STATUS" in fetch(world, address, "/metrics")
    assert " 404 " in fetch(world, address, "/api/v1/bookie/state")
    assert world.service.other_endpoints == ()
    done(admin.close())


def test_what_is_refused_over_http_is_on_the_page(tmp_path: Path) -> None:
    world = World(tmp_path, http_enabled=True, http_port=8080, http_token="secret")
    admin = served(world)
    address = ("127.0.0.1", 8080)

    def counted() -> dict[str, int]:
        lines = fetch(world, address, "/metrics").splitlines()
        name = 'bookied_http_requests_total{status="'
        return {
            line.removeprefix(name)[:3]: int(float(line.split()[-1]))
            for line in lines
            if line.startswith(name)
        }

    assert counted() == {"401": 0, "403": 0, "404": 0, "405": 0}
    for request in (
        "PUT /api/v2/bookie/read-only HTTP/1.0\r\n\r\n",
        "PUT /api/v1/bookie/gc HTTP/1.0\r\nAuthorization: Bearer wrong\r\n\r\n",
        "GET /nonsense HTTP/1.0\r\n\r\n",
        "PATCH /heartbeat HTTP/1.0\r\n\r\n",
    ):
        exchange(world, address, request)
    assert counted() == {"200": 1, "401": 2, "403": 0, "404": 1, "405": 1}
    done(admin.close())


def test_a_token_in_a_file_is_read_again_when_asked_and_kept_if_it_cannot(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    world = World(tmp_path, http_enabled=True, http_token="other", http_token_file=str(file))
    admin = served(world)

    def opens(token: str) -> bool:
        request = f"PUT /api/v1/bookie/gc HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n"
        return " 401 " not in exchange(world, ("127.0.0.1", 8080), request)

    assert [opens(one) for one in ("first", "second", "other")] == [True, False, False]
    file.write_text("second")
    assert opens("first"), "nobody has asked yet"
    admin.reload()
    assert [opens(one) for one in ("first", "second")] == [False, True]
    for spoil in (lambda: file.write_text("  "), file.unlink):
        spoil()
        admin.reload()
        assert opens("second")
    done(admin.close())


def test_a_token_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    world = World(tmp_path, http_enabled=True, http_token_file=str(tmp_path / "none"))
    with pytest.raises(TokenFileError, match="httpAdminTokenFile"):
        served(world)


class TakenPorts(FakeListener):
    def bind(self, host: str, port: int) -> Any:
        raise PortInUseError(f"port {port} is in use by another process")


def test_a_port_that_is_taken_stops_the_admin_server_and_metrics_do_without(tmp_path: Path) -> None:
    world = World(tmp_path, http_enabled=True)
    object.__setattr__(world.service.parts, "listener", TakenPorts())
    with pytest.raises(PortInUseError):
        served(world)
    world = World(tmp_path, stats_provider="PrometheusMetricsProvider")
    object.__setattr__(world.service.parts, "listener", TakenPorts())
    admin = served(world)
    done(admin.close())


def test_what_autorecovery_does_is_on_its_bookies_page(tmp_path: Path) -> None:
    world = World(tmp_path, http_enabled=True, autorecovery=True)
    owners = []

    def open_store(*, lock_owner: str) -> Any:
        owners.append(lock_owner)
        return world.cluster.metadata()

    world.service.parts = attrs.evolve(world.service.parts, open_store=open_store)
    admin = served(world)
    address = ("127.0.0.1", 8080)
    assert "replication_" not in fetch(world, address, "/metrics")
    done(world.service.start())
    world.run_for(5)
    page = fetch(world, address, "/metrics")
    assert 'replication_auditor_AUDIT_BOOKIES_TIME_count{success="true"} 1' in page
    assert set(owners) == {world.service.identity.bookie_id}, "its locks say which bookie it is"
    assert "replication_replication_worker_NUM_ENTRIES_WRITTEN 0" in page
    world.stop()
    done(admin.close())


def test_autorecovery_alone_serves_its_metrics_and_does_without_where_the_port_is_taken(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    service = AutoRecoveryService(world.service.config, world.service.parts)
    metrics = RepairMetrics(service)
    metrics.start()
    address = ("127.0.0.1", 8000)
    page = fetch(world, address, "/metrics")
    assert "auditor_NUM_LEDGERS_CHECKED 0" in page
    assert "process_cpu_seconds_total" in page
    assert "bookie_SERVER_STATUS" not in page
    assert "404" in fetch(world, address, "/api/v2/bookie")
    done(metrics.close())
    assert world.listener.others[address].factory is None

    def taken(host: str, port: int) -> None:
        raise PortInUseError(f"{host}:{port}")

    world.listener.bind = taken  # type: ignore[method-assign, assignment]
    another = RepairMetrics(service)
    another.start()
    done(another.close())
