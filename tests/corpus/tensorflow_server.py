"""A real TensorFlow server in place of our binary, which exits when the program that started it reports that it is done."""

import os
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))


def end_with_program():
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_program, daemon=True).start()
    import tf_server

    tf_server.main()
