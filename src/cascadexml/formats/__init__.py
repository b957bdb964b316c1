"""Readers: one file an on-disk format; `recognise` looks, `read` returns a RawCorpus, whatever the format."""
