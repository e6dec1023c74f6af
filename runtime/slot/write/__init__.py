"""The slot's destination side: lanes, their transactions, produce requests and recovery."""
