# Installs, starts and stops the Kafka of a checkout. Sourced by dev/services, and by scripts that run brokers of their own.
#
# shellcheck shell=bash

kafka_version=4.4.0
kafka_libs=$cache_dir/services/kafka-$kafka_version
kafka_run=$cache_dir/services/run-$(printf '%s' "$repo_root" | sha256sum | cut -c 1-12)/kafka
kafka_password=nereus-test

kafka_install() {
  if [[ -f $kafka_libs/installed ]]; then return 0; fi
  local missing=()
  command -v java >/dev/null || missing+=(default-jdk-headless)
  command -v mvn >/dev/null || missing+=(maven)
  command -v openssl >/dev/null || missing+=(openssl)
  install_packages "${missing[@]}"
  mkdir -p "$kafka_libs"
  note "install Kafka $kafka_version" mvn -B -f "$repo_root/dev/lib/kafka/pom.xml" dependency:copy-dependencies \
    "-Dkafka.version=$kafka_version" "-DoutputDirectory=$kafka_libs"
  touch "$kafka_libs/installed"
}

# kafka_provide ARGUMENT…: where the arguments name Kafka, installs it and says where its libraries are, for a broker of one's own.
kafka_provide() {
  if [[ " $* " != *kafka* ]]; then return 0; fi
  kafka_install
  export NEREUS_TEST_KAFKA_LIBS=$kafka_libs
}

kafka_java() { java -cp "$kafka_libs/*" "$@"; }

# An authority and a certificate for loopback, made on the spot: they are worth nothing outside this folder.
kafka_certificates() {
  local tls=$kafka_run/tls
  mkdir -p "$tls"
  openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=nereus-test-authority \
    -keyout "$tls/ca.key" -out "$tls/ca.pem" 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout "$tls/server.key" -out "$tls/server.csr" 2>/dev/null
  openssl x509 -req -in "$tls/server.csr" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" -CAcreateserial -days 3650 \
    -extfile <(printf 'subjectAltName=DNS:localhost,IP:127.0.0.1') -out "$tls/server.pem" 2>/dev/null
  openssl pkcs12 -export -in "$tls/server.pem" -inkey "$tls/server.key" -certfile "$tls/ca.pem" \
    -passout "pass:$kafka_password" -out "$tls/server.p12"
}

free_ports() {
  python3 -c 'import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(socket.getsockname()[1] for socket in sockets))' "$1"
}

kafka_configure() {
  local plain sasl tls controller
  read -r plain sasl tls controller < <(free_ports 4)
  rm -rf "$kafka_run"
  mkdir -p "$kafka_run"
  kafka_certificates
  sed -e "s|@PLAIN@|$plain|g; s|@SASL@|$sasl|g; s|@TLS@|$tls|g; s|@CONTROLLER@|$controller|g" \
    -e "s|@RUN@|$kafka_run|g; s|@PASSWORD@|$kafka_password|g" \
    "$repo_root/dev/lib/kafka/server.properties" >"$kafka_run/server.properties"
  cat >"$kafka_run/addresses" <<END
NEREUS_TEST_KAFKA=127.0.0.1:$plain
NEREUS_TEST_KAFKA_SASL=127.0.0.1:$sasl
NEREUS_TEST_KAFKA_TLS=127.0.0.1:$tls
NEREUS_TEST_KAFKA_CA=$kafka_run/tls/ca.pem
NEREUS_TEST_KAFKA_LIBS=$kafka_libs
END
  local users=()
  local user
  for user in admin alice mallory; do users+=(--add-scram "SCRAM-SHA-512=[name=$user,password=$kafka_password]"); done
  kafka_java kafka.tools.StorageTool format -t "$(kafka_java kafka.tools.StorageTool random-uuid 2>/dev/null)" \
    -c "$kafka_run/server.properties" "${users[@]}" >"$kafka_run/format.log" 2>&1 || {
    tail -n 30 "$kafka_run/format.log" >&2
    return 1
  }
}

kafka_is_running() {
  [[ -f $kafka_run/pid ]] && kill -0 "$(<"$kafka_run/pid")" 2>/dev/null &&
    tr '\0' ' ' <"/proc/$(<"$kafka_run/pid")/cmdline" | grep -q "$kafka_run"
}

kafka_start() {
  if kafka_is_running; then return 0; fi
  kafka_install
  kafka_configure
  # A session of its own: a Ctrl-C at the terminal is for the tests, which stop the broker themselves.
  setsid java -Xms256m -Xmx512m -cp "$kafka_libs/*" "-Dnereus.run=$kafka_run" kafka.Kafka "$kafka_run/server.properties" \
    >"$kafka_run/server.log" 2>&1 </dev/null &
  printf '%s\n' $! >"$kafka_run/pid"
  printf 'NEREUS_TEST_KAFKA_PID=%s\n' $! >>"$kafka_run/addresses"
  note "Kafka answers" kafka_await || {
    say "the end of $kafka_run/server.log:"
    tail -n 40 "$kafka_run/server.log" >&2
    return 1
  }
}

# The broker listens once it has joined its controller.
kafka_await() {
  local attempt port
  port=$(sed -n 's/^NEREUS_TEST_KAFKA=.*://p' "$kafka_run/addresses")
  for ((attempt = 0; attempt < 600; attempt++)); do
    kafka_is_running || return 1
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  return 1
}

kafka_stop() {
  if ! kafka_is_running; then return 0; fi
  local pid attempt
  pid=$(<"$kafka_run/pid")
  # A test may have left it paused.
  kill -CONT "$pid"
  kill -TERM "$pid"
  for ((attempt = 0; attempt < 300; attempt++)); do
    if ! kill -0 "$pid" 2>/dev/null; then
      rm -f "$kafka_run/pid"
      return 0
    fi
    sleep 0.1
  done
  say "Kafka did not stop within 30 s and is killed"
  kill -KILL "$pid"
}

kafka_status() {
  if kafka_is_running; then
    say "Kafka $kafka_version runs as process $(<"$kafka_run/pid"); its log is $kafka_run/server.log"
    cat "$kafka_run/addresses"
  else
    say "Kafka is not running"
  fi
}

kafka_export() {
  set -a
  # shellcheck disable=SC1091
  source "$kafka_run/addresses"
  set +a
}
