#!/bin/sh
# Make the secrets of compose.yaml, once: .env, and keys/keys with one API key, of the tenant `main`.
set -eu
cd "$(dirname "$0")"
if [ -e .env ]; then
    echo "deploy/.env exists; nothing has changed"
    exit
fi
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
mkdir -p keys
printf 'main %s\n' "$(random)" >keys/keys
chmod 755 keys && chmod 644 keys/keys # the user of the containers reads it
umask 077
cat >.env <<END
INTERLOCK_KEYS=$(head -c 32 /dev/urandom | base64)
INTERLOCK_METRICS_KEY=$(random)
GRAFANA_PASSWORD=$(random)
POSTGRES_PASSWORD=$(random)
END
echo "The API key is in deploy/keys/keys, Grafana's password (of admin) in deploy/.env."
