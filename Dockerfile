# Two images from these sources: `planner`, which talks to clusters, and `jobs`, which also runs jobs, the pages and the lab.
#   docker build --target planner --tag repl-planner .
#   docker build --target jobs --tag repl-jobs .
# `make image` builds both without Docker, and starts them.
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS python
RUN apt-get update -qq \
 && apt-get install -qq --yes --no-install-recommends ca-certificates python3 libgssapi-krb5-2 >/dev/null \
 && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --create-home repl \
 && install --directory --owner repl --group repl /topology /var/lib/repl
ENV PATH=/opt/venv/bin:$PATH REPL_HOME=/var/lib/repl
WORKDIR /topology

# The versions are those of requirements.lock; nothing of pip or of the build stays.
FROM python AS build
RUN apt-get update -qq && apt-get install -qq --yes --no-install-recommends python3-venv >/dev/null
WORKDIR /src
COPY requirements.lock ./
RUN sed -n 's/^\([a-z0-9._-]*==[^ ;]*\).*/\1/p' requirements.lock > /constraints.txt && python3 -m venv /opt/venv
ENV PIP_CONSTRAINT=/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY pyproject.toml README.md LICENSE ./
COPY planner planner
COPY runtime runtime

FROM build AS build-planner
ARG PIP_CERT
RUN pip install --quiet '.[keystores,msk]' && pip uninstall --quiet --yes pip setuptools

FROM build AS build-jobs
ARG PIP_CERT
RUN pip install --quiet '.[spark,files,ui,keystores,msk]' && pip uninstall --quiet --yes pip setuptools

FROM python AS planner
COPY --from=build-planner /opt/venv /opt/venv
ENV PYTHONDONTWRITEBYTECODE=1
# By number, so that Kubernetes can tell that it is not root.
USER 10001
HEALTHCHECK --interval=60s --timeout=10s CMD ["repl", "--version"]
ENTRYPOINT ["repl"]
CMD ["--help"]

# /opt/repl is where the launcher `kubernetes` looks for the product. tini is the init that jobs need: a supervisor outlives the
# command that started it.
FROM python AS jobs
RUN apt-get update -qq && mkdir -p /usr/share/man/man1 \
 && apt-get install -qq --yes --no-install-recommends openjdk-17-jre-headless procps tini >/dev/null \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY --from=build-jobs /opt/venv /opt/venv
RUN ln -s "$(dirname "$(dirname "$(python3 -c 'import importlib.util as u; print(u.find_spec("runtime").origin)')")")" /opt/repl
ENV PYTHONDONTWRITEBYTECODE=1
# By number, so that Kubernetes can tell that it is not root.
USER 10001
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s \
  CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9404/healthz', timeout=5)"]
ENTRYPOINT ["tini", "--", "repl"]
CMD ["--help"]
