#!/usr/bin/env bash
# Runs a program of MPI on two network namespaces in place of two machines, joined by a virtual cable. As root, with
# Open MPI and iproute2: two_machines.sh RANKS_PER_NODE PROGRAM [ARGUMENTS]
set -euo pipefail

ranks=$1
shift
id=plimsoll$$
net=10.77.0

clean() {
    ip netns del "${id}a" 2>/dev/null || true
    ip netns del "${id}b" 2>/dev/null || true
    rm -f "${agent:-}"
}
trap clean EXIT

ip netns add "${id}a"
ip netns add "${id}b"
ip link add cable0 netns "${id}a" type veth peer name cable0 netns "${id}b"
for end in a:1 b:2; do
    ip -n "$id${end%:*}" link set lo up
    ip -n "$id${end%:*}" addr add "$net.${end#*:}/24" dev cable0
    ip -n "$id${end%:*}" link set cable0 up
done

# Takes the place of ssh: the other machine is the other namespace, with a name of its own.
agent=$(mktemp)
cat > "$agent" <<EOF
#!/usr/bin/env bash
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
exec ip netns exec "${id}b" unshare --uts bash -c "hostname nodeb; \$*"
EOF
chmod +x "$agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# shellcheck disable=SC2016
ip netns exec "${id}a" unshare --uts bash -c 'hostname nodea; exec mpirun "$@"' mpirun \
    --mca plm_rsh_agent "$agent" --mca btl tcp,self --mca btl_tcp_if_include "$net.0/24" \
    --mca oob_tcp_if_include "$net.0/24" --host "$net.1:$ranks,$net.2:$ranks" --map-by "ppr:$ranks:node" \
    --bind-to none -n $((2 * ranks)) "$@"
