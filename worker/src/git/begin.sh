# What stands before each script: what it says goes to descriptor 3 alone, and what git prints to a file.
set -Eeuo pipefail
ulimit -f 8388608
log=$TMPDIR/git.log
exec 3>&1 >"$log" 2>&1 </dev/null
say() { printf '%s=%s\n' "$1" "${2//$'\n'/ }" >&3; }
refuse() { trap - ERR; say refused "$1"; say hint "$2"; exit 65; }
trap 'code=$?; trap - ERR; say failed "$(tail -c 1500 "$log")"; exit "$code"' ERR
team=$T_HOME_OF_TEAM/team.git
in_place='tasks and checks in place need none of this: spawn without --checkout'
command -v git >/dev/null || refuse 'git is not installed' "install git 2.38 or newer; $in_place"
version=$(git version | grep -oE '[0-9]+\.[0-9]+' | head -n 1)
if [ "$(printf '2.38\n%s\n' "$version" | sort -V | head -n 1)" != 2.38 ]; then
    refuse "git $version is too old for checkouts" "install git 2.38 or newer; $in_place"
fi
# Names what is not committed in a checkout: its own settings alone say what is ignored, and no submodule is entered.
uncommitted() { git status --porcelain --untracked-files=normal --ignore-submodules=dirty | head -n 11; }
# Enters a checkout. The file `.git` of another directory never counts.
enter() {
    cd "$T_WRITES"
    [ -d .git ] && [ ! -L .git ] || refuse "$T_WRITES is no checkout" "\`teamctl forget $T_NAME --discard\`, and spawn it again"
    export GIT_DIR=$T_WRITES/.git GIT_WORK_TREE=$T_WRITES
}
refuse_uncommitted() {
    local files
    files=$(uncommitted)
    [ -z "$files" ] || refuse "$T_WRITES has changes that are not committed: $(sed 's/^...//' <<<"$files" | paste -sd, | sed 's/,/, /g')" "$1"
}
# Shows the integration branch in a repository of the user. Neither hooks nor other settings of that have it do more.
publish() {
    git -c core.logAllRefUpdates=false -c fetch.fsckObjects=true -c fetch.writeCommitGraph=false fetch --quiet --no-tags \
        --no-write-fetch-head --no-auto-maintenance --no-recurse-submodules --refmap= "$team" \
        +refs/heads/integration:refs/remotes/team/integration
}
