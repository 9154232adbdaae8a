"""The .proto files and what is generated from them; never edited by hand."""
