# One image for every role: `docker run skysail run --role selection`. It has no compiler and no root. Torch models:
# --build-arg EXTRAS=control,gateway,otel,signing,sklearn,torch
FROM python:3.12-slim AS build
ARG EXTRAS=control,gateway,otel,signing,sklearn
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE skysail.py ./
COPY schemas schemas
COPY policies policies
COPY streams streams
COPY workers workers
COPY deploy deploy
COPY load load
RUN python -m venv /opt/skysail \
    && /opt/skysail/bin/pip install --no-cache-dir --constraint deploy/constraints.txt ".[worker,${EXTRAS}]"
# Without a compiler an installation works, slowly: an image that does is not built. Not in /src, which has no extensions.
RUN cd / && /opt/skysail/bin/python -P -m deploy.process.installed

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 --user-group skysail
COPY --from=build /opt/skysail /opt/skysail
ENV PATH=/opt/skysail/bin:$PATH PYTHONUNBUFFERED=1
USER skysail
WORKDIR /home/skysail
# Whether the role lives, where it shows figures; of a command that shows none nothing is asked.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 CMD ["python", "-c", "\
import os, urllib.request as web; \
port = os.environ.get('SKYSAIL_METRICS__PORT'); \
port and web.urlopen(f'http://127.0.0.1:{port}/health', timeout=4)"]
ENTRYPOINT ["skysail"]
CMD ["--help"]
