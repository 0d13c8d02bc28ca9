# Begins scripts that read a repository of the user, or show something there: what is the user's, and under which names it is seen.

# Has our git take the directories for safe that the user calls so. A file says it: a git that reads another repository believes no
# variable. What else the user has set does not count here.
believe_user() {
    local value
    [ ! -e "$TMPDIR/safe" ] || return 0
    {
        printf '[safe]\n'
        # The settings of no repository: these have no say in it.
        (
            unset GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM GIT_CONFIG_COUNT
            [ -z "${T_CONFIG_GLOBAL+x}" ] || export GIT_CONFIG_GLOBAL=$T_CONFIG_GLOBAL
            [ -z "${T_CONFIG_SYSTEM+x}" ] || export GIT_CONFIG_SYSTEM=$T_CONFIG_SYSTEM
            [ -z "${T_CONFIG_NOSYSTEM+x}" ] || export GIT_CONFIG_NOSYSTEM=$T_CONFIG_NOSYSTEM
            GIT_DIR=/dev/null exec git config --null --get-all safe.directory >"$TMPDIR/believed"
        ) || true
        while IFS= read -r -d '' value; do believe "$value"; done <"$TMPDIR/believed"
        while IFS= read -r value; do [ -z "$value" ] || believe "$value"; done <<<"$T_SAFE"
        # The user's git took it for safe, by the name of a tree, when the team repository was made.
        if [ -e "$team" ]; then
            read_source
            believe "$source"
        fi
    } >"$TMPDIR/safe"
    export GIT_CONFIG_GLOBAL=$TMPDIR/safe
}
# Writes the line that says so of one directory.
believe() {
    local value=${1//\\/\\\\}
    printf '\tdirectory = "%s"\n' "${value//\"/\\\"}"
}

# Writes the names that a clone of ours sees into a file: the integration branch as that of `origin`, and the user's remote-tracking
# branches and tags as the user knows them.
write_names() {
    git --git-dir="$team" for-each-ref --format='%(objectname) %(refname)' refs/heads refs/remotes refs/tags |
        sed '\|^[^ ]* refs/remotes/[^/]*/HEAD$|d; s|^\([^ ]*\) refs/heads/|\1 refs/remotes/origin/|' | LC_ALL=C sort -k 2 >"$1/packed-refs"
    if ! has_no_other_names "$1/refs"; then
        rm -rf -- "$1/refs/remotes" "$1/refs/tags"
        mkdir -p -- "$1/refs/remotes/origin" "$1/refs/tags"
    fi
    # A symbolic name is always a file by itself.
    local head=''
    [ ! -e "$team/refs/remotes/origin/HEAD" ] || IFS= read -r head <"$team/refs/remotes/origin/HEAD"
    [[ $head == 'ref: '* ]] || head='ref: refs/remotes/origin/integration'
    printf '%s\n' "$head" >"$1/refs/remotes/origin/HEAD"
    # Where history is cut off.
    [ ! -e "$1/shallow" ] || rm -f -- "$1/shallow"
    [ ! -e "$team/shallow" ] || cp -- "$team/shallow" "$1/shallow"
}
# Tells whether no names are among these ($1) but the one that is written as a file. No program is started to see that.
has_no_other_names() {
    shopt -s dotglob nullglob
    local names=("$1/remotes"/* "$1/remotes/origin"/* "$1/tags"/*)
    shopt -u dotglob nullglob
    [ "${names[*]}" = "$1/remotes/origin $1/remotes/origin/HEAD" ] && [ -d "$1/tags" ]
}

# Makes a clone that shares the objects of the team repository. `git clone --shared` does not where history is cut off.
clone_team() {
    rm -rf .new
    GIT_DEFAULT_REF_FORMAT=files git init --quiet --template= --object-format="$(git --git-dir="$team" rev-parse --show-object-format)" --initial-branch=work .new
    mkdir -p .new/.git/hooks .new/.git/objects/info
    printf '%s\n' "$team/objects" >.new/.git/objects/info/alternates
    git config --file .new/.git/config remote.origin.url "$team"
    printf '\tfetch = %s\n' '+refs/heads/*:refs/remotes/origin/*' '+refs/team/*:refs/team/*' '+refs/remotes/*:refs/remotes/*' '^refs/remotes/*/HEAD' >>.new/.git/config
    write_names .new/.git
    git config --file .new/.git/config teamd.name "$T_NAME"
}

# Tells whether what is integrated can be shown as a remote-tracking branch of this remote, in the repository of the user that is entered:
# the user has no such remote or branch, no other team has that name there, and nothing is lost with what it names now.
is_free() {
    local name=refs/remotes/$1/integration held common
    common=$(git rev-parse --path-format=absolute --git-common-dir)
    common=$(realpath -- "$common")
    ! git config --get-regexp "^remote\.$1\." || return 1
    ! git config --get-regexp '^remote\..*\.fetch$' | grep -qF ":refs/remotes/$1/" || return 1
    ! grep -qxF -- "$name ${common//$'\n'/ }" <<<"${T_HELD-}" || return 1
    [ -z "$(git for-each-ref --count=1 "refs/heads/$1/integration" "refs/tags/$1/integration" "refs/remotes/$1/integration/")" ] || return 1
    ! git show-ref --verify --quiet "refs/remotes/$1" || return 1
    held=$(git rev-parse --verify --quiet "$name^{commit}") || return 0
    git merge-base --is-ancestor "$held" HEAD || git --git-dir="$team" merge-base --is-ancestor "$held" refs/heads/integration
}

# Finds the name under which what is integrated is shown: the one that the team has, as long as no remote of the user has it.
choose_name() {
    local remote=team number=2 at=$1
    shown=
    if setting "$team/config" shown; then
        shown=$value
        remote=${shown#refs/remotes/}
        git config --get-regexp "^remote\.${remote%%/*}\." || return 0
        remote=team
    fi
    if ! is_free "$remote"; then
        at=${at##*/}
        at=team-${at//[^A-Za-z0-9_-]/-}
        remote=$at
        until is_free "$remote"; do
            remote=$at-$number
            number=$((number + 1))
        done
    fi
    shown=refs/remotes/$remote/integration
}

# Shows the integration branch in a repository of the user. Neither hooks nor other settings of that have it do more.
publish() {
    choose_name "$1"
    # A fetch would write what a symbolic one leads to: a branch of the user.
    ! git symbolic-ref --quiet "$shown" || git symbolic-ref --delete "$shown"
    git -c core.logAllRefUpdates=false -c fetch.fsckObjects=true -c fetch.writeCommitGraph=false fetch --quiet --no-tags \
        --no-write-fetch-head --no-auto-maintenance --no-recurse-submodules --refmap= "$team" \
        "+refs/heads/integration:$shown"
    say shown "$shown"
}
