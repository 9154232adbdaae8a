"""The .proto files and the modules generated from them; never edited by hand."""
