"""A real TensorFlow server in the place of our binary, that ends when the program that started it says that it is done."""

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
