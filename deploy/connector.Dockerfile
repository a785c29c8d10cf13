# The connector as a container, for environments with driver docker: it has containers made beside its own.
#
#   deploy/stage.sh connector
#   docker build -f deploy/connector.Dockerfile -t execwarden/connector .
#
#   docker run -d --name execwarden-connector --restart unless-stopped --read-only \
#     --security-opt no-new-privileges --cap-drop ALL --cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add FOWNER \
#     -v /var/run/docker.sock:/var/run/docker.sock \
#     -v /var/lib/execwarden-connector:/var/lib/execwarden-connector \
#     -v /etc/execwarden:/etc/execwarden:ro \
#     execwarden/connector
#
# The home has the same path inside as on the machine: the engine binds directories by the machine's paths. Run it once with
# `connect init` (without :ro), `connect check --driver docker` and `connect enrol` in place of nothing. CHOWN,
# DAC_OVERRIDE and FOWNER are for volumes, which belong to the commands' user. Whoever has the engine's socket is as good as
# root on the machine, and so is this container.
FROM scratch
COPY .bin/image/connector/ /
ENTRYPOINT ["/execwarden"]
CMD ["connect"]
