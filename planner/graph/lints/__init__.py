"""What cannot work, and what follows from what can: each lint is a code in docs/lints.md."""
