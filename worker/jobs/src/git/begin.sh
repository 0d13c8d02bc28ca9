# Precedes each script. What the script prints goes to descriptor 3 alone, and the errors of git go to a file. A command does not fail if
# that file has no room.
set -euo pipefail
shopt -s inherit_errexit
ulimit -f 8388608
log=$TMPDIR/git.log
exec 3>&1 2>>"$log" >/dev/null </dev/null
say() { printf '%s=%s\n' "$1" "${2//$'\n'/ }" >&3; }
refuse() {
    is_whole ||
        set -- "$T_WRITES is not a checkout any more: its .git is damaged" "\`teamctl forget $T_NAME --discard\` removes it; then spawn $T_NAME again"
    say refused "$1"
    say hint "$2"
    exit 65
}
# Tells whether git takes the checkout that was entered for one. This is asked where something fails: that is the reason then.
is_whole() { [ -z "${GIT_WORK_TREE-}" ] || git rev-parse --git-dir; }
# Removes what a script must not leave that ends with $code.
tidy() { :; }
# Says why something has failed. A trap of this shell alone: a subshell that fails ends it, too. With one for ERR, each `$(git …)` would take
# a second process.
end() {
    code=$?
    trap - EXIT
    tidy || [ "$code" = 65 ] || code=1
    if [ "$code" != 0 ] && [ "$code" != 65 ]; then
        is_whole || refuse '' ''
        say failed "$(uniq "$log" | tail -c 1500)"
    fi
    exit "$code"
}
trap end EXIT
team=$T_HOME_OF_TEAM/team.git
in_place='tasks and checks in place need none of this: spawn without --checkout'
command -v git >/dev/null || refuse 'git is not installed' "install git 2.38 or newer; $in_place"
# The git of the one whose tree it is: `judge git …`. It has that one's variables, and of ours where it works.
theirs=()
for name in "${!J_@}"; do
    theirs+=("${!name}")
    unset "$name"
done
judge() {
    local at=("TMPDIR=$TMPDIR") variable
    for variable in GIT_DIR GIT_WORK_TREE GIT_ATTR_SOURCE; do
        [ -z "${!variable-}" ] || at+=("$variable=${!variable}")
    done
    env -i -- "${theirs[@]}" "${at[@]}" "$@"
}
# Shows the first lines, and reads all of them: what writes them would fail if it were left alone.
first() { sed -n "1,$1p"; }
# Reads a setting of ours into $value. No git is started for one that is in the file without quotes.
setting() {
    local text='' plain=$'\n\\[teamd\\]\n(\t[^\n]*\n)*\t'"$2"$' = ([^\n"\\\\]*)\n'
    [ ! -f "$1" ] || IFS= read -r -d '' text <"$1" || true
    if [[ $text =~ $plain ]]; then value=${BASH_REMATCH[2]}; else value=$(git config --file "$1" "teamd.$2"); fi
}
# Reads where the user's repository is, into $source.
read_source() {
    setting "$team/config" source && source=$value
}
# Reads the tip of the integration branch into $tip, from its file if it has one.
read_tip() { IFS= read -r tip <"$team/refs/heads/integration" || tip=$(git --git-dir="$team" rev-parse refs/heads/integration); }
# Refuses what we have not made for this teammate: no command of a teammate changes the settings that say so.
require_own() {
    [ ! -L "$T_WRITES/.git" ] && setting "$T_WRITES/.git/config" name && [ "$value" = "$T_NAME" ] ||
        refuse "$T_WRITES is not a checkout of $T_NAME" 'move it away, and try again'
}
# Enters a checkout; without the team repository it is not whole. The file `.git` of another directory never counts, and what is ignored its committed files and we say. In a repository of the user nothing is changed.
enter() {
    [ -e "$team" ] || refuse "the team repository $team is gone" "put it back from a copy; without one, save what you need of $T_WRITES, and \`teamctl forget $T_NAME --discard\`"
    cd "$T_WRITES"
    require_own
    export GIT_DIR=$T_WRITES/.git GIT_WORK_TREE=$T_WRITES
    is_ours .git/info || { rm -rf .git/info && mkdir .git/info; }
    printf '%s\n' "$T_IGNORED" >.git/info/exclude
}
# Tells whether nothing is in a directory but the file that we write there. No program is started to see that.
is_ours() {
    shopt -s dotglob nullglob
    local files=("$1"/*)
    shopt -u dotglob nullglob
    [ -d "$1" ] && [ ! -L "$1" ] && [ "${files[*]}" = "$1/exclude" ] && [ -f "$1/exclude" ] && [ ! -L "$1/exclude" ]
}
# Tells whether a path of a clone is a directory, and no link leads there. One that is missing is made.
is_directory() {
    [ -n "$1" ] || return 0
    mkdir -p -- "./$1" || true
    [ "$(realpath -e -- "./$1")" = "$PWD${1:+/${1%/}}" ] && [ -d "./$1" ]
}
