"""One query's story, from the records that name it: pure. Records in, a value out."""
