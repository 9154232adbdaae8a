# bookied and bkctl in one image:
#   docker build -t bookied .
#   docker run -v /etc/bookkeeper:/etc/bookkeeper:ro -v /data:/var/lib/bookkeeper -p 3181:3181 bookied
# The steps are scripts, which run anywhere: a test runs them without Docker.

FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY . /src
RUN sh /src/container/install.sh /src /opt/bkctl

FROM python:3.12-slim
COPY --from=build /opt/bkctl /opt/bkctl
COPY container/user.sh /tmp/user.sh
RUN sh /tmp/user.sh && rm /tmp/user.sh
ENV PATH=/opt/bkctl/bin:$PATH PYTHONUNBUFFERED=1
USER bookkeeper
WORKDIR /var/lib/bookkeeper
VOLUME /var/lib/bookkeeper
EXPOSE 3181 8080
# SIGTERM drains and stops: give it time (docker stop -t 120, terminationGracePeriodSeconds: 120).
STOPSIGNAL SIGTERM
ENTRYPOINT ["bookied"]
CMD ["--conf", "/etc/bookkeeper/bk_server.conf"]
