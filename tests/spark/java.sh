#!/bin/sh
# Says whether Spark will find a Java of version 17 or newer: JAVA_HOME, else PATH, else apt installs one. Fails with one line if not.
set -u
wanted=17

version() { # of a java, as a plain number
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

found() {
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    command -v "$java" >/dev/null 2>&1 && [ "$(version "$java")" -ge "$wanted" ] 2>/dev/null
}

found && exit 0
if [ -z "${JAVA_HOME:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless; } >/dev/null 2>&1
    found && exit 0
fi
echo "make: Spark needs Java $wanted or newer: install openjdk-17-jre-headless (or another), or let JAVA_HOME name one" >&2
exit 1
