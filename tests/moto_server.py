"""moto's S3 server, with one write at a time: on its own it checks a condition first and writes later.

Two writers then both pass the check: of 2,000 acknowledged conditional writes by 4 processes, 8 were lost.
"""

import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)
one_at_a_time = threading.Lock()


def serve(environ, start_response):
    if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
        return application(environ, start_response)
    with one_at_a_time:
        return list(application(environ, start_response))


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True)
