"""Lines for people in the application's log, beside what Spark says there."""

import os
import time


def say(text: str) -> None:
    os.write(2, f"{time.strftime('%H:%M:%S')} repl: {text}\n".encode())
