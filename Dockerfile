# One image for every actor: `sandstream actor harness`, `sandstream worker app.py`, ...
# BASE is any image with Python 3.11 or newer.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY sandstream sandstream
COPY bus bus
COPY actors actors
COPY providers providers
COPY workspaces workspaces
COPY memory_pipeline memory_pipeline
# Empty as a rule. With wheels in it (see its README) no index is asked and no pip is needed in BASE.
COPY deploy/wheels wheels
RUN python3 -m venv --without-pip /opt/sandstream \
 && if ls wheels/sandstream-*.whl >/dev/null 2>&1; then \
      /opt/sandstream/bin/python "$(ls wheels/pip-*.whl)/pip" install --quiet \
        --no-cache-dir --no-index --find-links wheels 'sandstream[uvloop,nkeys,otlp,prometheus,docker]'; \
    else \
      python3 -m pip --python /opt/sandstream/bin/python install --quiet \
        --no-cache-dir --disable-pip-version-check '.[uvloop,nkeys,otlp,prometheus,docker]'; \
    fi

FROM ${BASE}
# For `sandstream actor sandbox`. A base that has it, or has no apt-get, is left as it is.
RUN command -v bwrap >/dev/null || ! command -v apt-get >/dev/null \
 || { apt-get -qq update && apt-get -qq install -y --no-install-recommends bubblewrap git >/dev/null \
      && rm -rf /var/lib/apt/lists/*; }
RUN mkdir -p /var/lib/sandstream && chown 10001:10001 /var/lib/sandstream
COPY --from=build /opt/sandstream /opt/sandstream
COPY examples /app/examples
ENV PATH=/opt/sandstream/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 10001:10001
CMD ["sandstream", "--help"]
