# One image for every role: `docker run skysail run --role selection`. Torch models: --build-arg EXTRAS='[torch]'.
FROM python:3.12-slim AS build
ARG EXTRAS=""
WORKDIR /src
COPY pyproject.toml README.md LICENSE skysail.py ./
COPY schemas schemas
COPY policies policies
COPY streams streams
COPY workers workers
COPY deploy deploy
COPY load load
RUN python -m venv /opt/skysail && /opt/skysail/bin/pip install --no-cache-dir ".${EXTRAS}"

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 skysail
COPY --from=build /opt/skysail /opt/skysail
ENV PATH=/opt/skysail/bin:$PATH PYTHONUNBUFFERED=1
USER skysail
WORKDIR /home/skysail
ENTRYPOINT ["skysail"]
CMD ["--help"]
