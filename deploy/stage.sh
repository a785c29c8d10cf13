#!/bin/sh
# Builds the files of each named service's image (default: all) into .bin/image/SERVICE: the static program as
# /service, /probe for health checks, the host's root certificates, and the helper programs that a service starts. Named
# alone, `connector` is what runs on a customer's machine, for deploy/connector.Dockerfile.
set -eu
cd "$(dirname "$0")/.."

# Shared by the servers that are not ours: compose mounts it for their health checks.
probe=.bin/image/probe

build() { # output package
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$1" "$2"
}

certificates() {
	for f in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
		if [ -n "$f" ] && [ -r "$f" ]; then
			echo "$f"
			return
		fi
	done
	echo "stage: no root certificates found; set SSL_CERT_FILE" >&2
	return 1
}

[ $# -gt 0 ] || set -- agentloop runtime toolbroker approvals environments ledger gateway webhooks provisioner

certs=$(certificates)
build "$probe" ./tools/probe
for service; do
	root=.bin/image/$service
	rm -rf "$root"
	mkdir -p "$root/etc/ssl/certs"
	case $service in
	connector)
		build "$root/execwarden" ./tools/execwarden
		build "$root/shim" ./services/environments/cmd/shim
		# Whom the policy's template names.
		echo 'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin' >"$root/etc/passwd"
		cp "$certs" "$root/etc/ssl/certs/ca-certificates.crt"
		continue
		;;
	provisioner) build "$root/service" ./tools/execwarden ;;
	*) build "$root/service" "./services/$service/cmd/$service" ;;
	esac
	cp "$probe" "$root/probe"
	cp "$certs" "$root/etc/ssl/certs/ca-certificates.crt"
	if [ "$service" = runtime ]; then
		build "$root/jsworker" ./services/runtime/cmd/jsworker
	fi
done
