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
# What a script that ends early must not leave.
tidy() { :; }
# Says why something has failed. A trap of this shell alone: a subshell that fails ends it, too. With one for ERR, each `$(git …)` would take
# a second process.
end() {
    local code=$?
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
# Lists in $TMPDIR/changed what is not committed in a checkout. What hides it is not believed: bits of the index go, and no submodule is entered.
uncommitted() {
    git ls-files -v -z | sed -zn 's/^[a-zS] //p' >"$TMPDIR/hidden"
    if [ -s "$TMPDIR/hidden" ]; then
        git update-index -z --no-assume-unchanged --stdin <"$TMPDIR/hidden"
        git update-index -z --no-skip-worktree --stdin <"$TMPDIR/hidden"
    fi
    changed >"$TMPDIR/changed"
}
# Names what has changed in a tree and is not committed, as its own git sees it. A file whose bytes are those of its blob has not, though
# attributes would have it stored otherwise: those are listed in $TMPDIR/unchanged.
changed() {
    judge git --no-optional-locks status --porcelain=v2 -z --no-renames --untracked-files=normal "${1:---ignore-submodules=dirty}" >"$TMPDIR/status"
    local entry file how in_index here id number maybe=() ids=() found=()
    while IFS= read -r -d '' entry; do
        case $entry in
        '? '*) file=${entry:2} ;;
        'u '*) file=${entry#* * * * * * * * * * } ;;
        *)
            file=${entry#* * * * * * * * }
            read -r _ how _ _ in_index here _ id _ <<<"$entry"
            if [[ $how$in_index == .M$here && $here == 100* && $file != *$'\n'* ]]; then
                maybe+=("$file")
                ids+=("$id")
                continue
            fi
            ;;
        esac
        printf '%s\n' "${file//$'\n'/ }"
    done <"$TMPDIR/status"
    : >"$TMPDIR/unchanged"
    [ "${#maybe[@]}" -gt 0 ] || return 0
    # It stops at a file that cannot be read, which has changed then.
    printf './%s\n' "${maybe[@]}" | git hash-object --no-filters --stdin-paths >"$TMPDIR/found" || true
    mapfile -t found <"$TMPDIR/found"
    for number in "${!maybe[@]}"; do
        if [ "${found[number]-}" = "${ids[number]}" ]; then
            printf '%s\0' "${maybe[number]}" >>"$TMPDIR/unchanged"
        else
            printf '%s\n' "${maybe[number]}"
        fi
    done
}
# Notes the state of those files in the index, by a git that converts nothing: then each other git sees by their times that they are unchanged.
# It would look again at a file as young as the index.
settle() {
    [ -s "$TMPDIR/unchanged" ] || return 0
    local raw=$TMPDIR/raw mark=$TMPDIR/mark file index objects common
    index=$(git rev-parse --path-format=absolute --git-path index)
    objects=$(git rev-parse --path-format=absolute --git-path objects)
    common=$(git rev-parse --path-format=absolute --git-common-dir)
    rm -rf "$raw"
    mkdir -p "$raw/refs" "$raw/info" "$raw/objects"
    cp -- "$common/config" "$raw/config"
    printf 'ref: refs/heads/none\n' >"$raw/HEAD"
    printf '* -text !eol !ident !filter !working-tree-encoding\n' >"$raw/info/attributes"
    touch -d '2 seconds ago' "$mark"
    while IFS= read -r -d '' file; do
        [ ! "./$file" -nt "$mark" ] || touch -h -r "$mark" -- "./$file"
    done <"$TMPDIR/unchanged"
    GIT_DIR=$raw GIT_WORK_TREE=$PWD GIT_INDEX_FILE=$index GIT_OBJECT_DIRECTORY=$objects \
        git -c core.splitIndex=false update-index -q --refresh || true
}
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
refuse_uncommitted() {
    uncommitted
    [ ! -s "$TMPDIR/changed" ] ||
        refuse "$T_WRITES has changes that are not committed: $(LC_ALL=C sort "$TMPDIR/changed" | first 11 | paste -sd, | sed 's/,/, /g')" "$1"
}
# Shows the subjects of a few commits that the team repository does not hold: of those named, and of what they rest on.
unsaved() {
    { printf '%s\n' "$@"; git --git-dir="$team" for-each-ref --format='^%(objectname)'; } | git log --no-decorate --format=%s --max-count=5 --stdin
}
# Finds the tree of a repository ($1) in which a directory ($2) lies, else the main one: $tree. No link is in either path. No git is asked there: tools may write there, and a
# `.git` that one plants would answer. A linked tree counts if the repository names it, too.
tree_of() {
    local at own main='' line
    at=$2
    while [ -n "$at" ] && [ "$at/.git" != "$1" ]; do
        if [ -f "$at/.git" ] && [ ! -L "$at/.git" ] && IFS= read -r line <"$at/.git" && own=$(cd -- "$at" && realpath -qe -- "${line#gitdir: }"); then
            [ "${own%/*}" != "$1/worktrees" ] || [ "$(cd -- "$own" && realpath -qe -- "$(<gitdir)")" != "$at/.git" ] || break
            # The outermost one: none can be planted above the team.
            [ "$own" != "$1" ] || [[ $1 == */.git ]] || main=$at
        elif [ -L "$at/.git" ] && [ "$(realpath -qe -- "$at/.git")" = "$1" ]; then
            main=$at
        fi
        at=${at%/*}
    done
    [ -n "$at" ] || at=${main:-${1%/.git}}
    tree=$at
}
# Finds the tree of the user's repository in which the team lies: $tree, of $source.
users_tree() {
    read_source
    tree_of "$source" "$T_TEAM"
}
say_users_tree() {
    believe_user
    users_tree
    cd "$tree" && git rev-parse --git-dir || refuse "$tree is no git repository any more" 'put it back, and try again'
    say tree "$tree"
    say source "$source"
}
# Finds where the team lies in that tree: $prefix, which is empty at its top, and elsewhere.
prefix_of_team() {
    users_tree
    prefix=
    [[ $T_TEAM != "$tree"/* ]] || prefix=${T_TEAM#"$tree"/}
}
# Tells whether a path of a clone is a directory, and no link leads there. One that is missing is made.
is_directory() {
    [ -n "$1" ] || return 0
    mkdir -p -- "./$1" || true
    [ "$(realpath -e -- "./$1")" = "$PWD${1:+/${1%/}}" ] && [ -d "./$1" ]
}
# Fills the submodules of a clone, and theirs, from local copies, in the user's tree: no address of `.gitmodules` is used. Those that the
# user has not filled stay empty, too.
fill_submodules() (
    unset GIT_DIR GIT_WORK_TREE
    from=() paths=() without=()
    [ -f .gitmodules ] && found=$(git config --file .gitmodules --get-regexp '^submodule\..*\.path$') || exit 0
    believe_user
    while read -r key path; do
        [[ $key$path != *=* && /$path/ != */../* ]] || { say note "submodules are empty: ${2:-}$path in .gitmodules cannot be used"; exit 0; }
        [ -e "$1/$path/.git" ] || { without+=("${2:-}$path"); continue; }
        from+=(-c "${key%.path}.url=$1/$path")
        paths+=("$path")
    done <<<"$found"
    case ${#without[@]} in
    0) ;;
    1) say note "the submodule ${without[0]} is empty, as it is in $T_TOP" ;;
    *) say note "${#without[@]} submodules are empty, as they are in $T_TOP: ${without[0]} and others" ;;
    esac
    for path in "${paths[@]}"; do
        if git "${from[@]}" submodule --quiet update --init --force -- ":(literal)$path"; then
            (cd -- "$path" && fill_submodules "$1/$path" "${2:-}$path/")
        else
            say note "the submodule ${2:-}$path is empty: $1 has no copy of it, or not of that commit"
            git submodule --quiet deinit --force -- ":(literal)$path" || true
        fi
    done
)
# Shows which contents of Git LFS the blobs among these objects, one a line, are pointers to.
lfs_ids() {
    git cat-file --batch-check='%(objecttype) %(objectsize) %(objectname)' | awk '$1 == "blob" && $2 < 400 { print $3 }' |
        git cat-file --batch | LC_ALL=C sed -n 's/^oid sha256:\([0-9a-f]\{64\}\)$/\1/p' | sort -u
}
# Copies into a repository ($2) what it lacks of the contents of Git LFS in a commit ($1), from those of the team and of the user. Shows what
# it lacks still.
bring_lfs() {
    local from id at source to=$2/lfs/objects
    read_source
    git ls-tree -r --object-only "$1" | lfs_ids | while read -r id; do
        at=${id:0:2}/${id:2:2}
        for from in "$team/lfs/objects" "$source/lfs/objects"; do
            [ ! -e "$to/$at/$id" ] && [ -f "$from/$at/$id" ] || continue
            mkdir -p -- "$to/$at"
            cp --reflink=auto -- "$from/$at/$id" "$to/$at/$id.new"
            mv -f -- "$to/$at/$id.new" "$to/$at/$id"
        done
        [ -e "$to/$at/$id" ] || printf '%s\n' "$id"
    done
}
# Tells whether there are such contents. Most have none, and are not searched.
has_lfs() {
    [ -d "$team/lfs" ] || { read_source && [ -d "$source/lfs/objects" ]; }
}
