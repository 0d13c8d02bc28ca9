# Looks at the user's repository, and copies it into the team repository unless that is there. It writes nothing in the user's.
version=$(git version)
[[ $version =~ ([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] >= 2038)) ||
    refuse "${version/ version/} is too old for checkouts" "install git 2.38 or newer; $in_place"
believe_user
cd "$T_SOURCE" || refuse "$T_SOURCE cannot be entered" "let this user read it; $in_place"
if ! top=$(git rev-parse --show-toplevel); then
    if [ "$(git rev-parse --is-bare-repository)" = true ]; then
        refuse "$T_SOURCE is a bare repository, and a teammate works on files" "run the team in a clone or a linked tree of it (\`git worktree add\`); $in_place"
    fi
    why=$(grep -m 1 '^fatal:' "$log" || true)
    why=${why#fatal: }
    at=$PWD
    until [ -e "$at/.git" ] || [ -L "$at/.git" ] || [ -z "$at" ]; do at=${at%/*}; done
    next='`git status` there shows it; put it right'
    case $why in
    *'dubious ownership'*) next="another user owns it: if you trust it, \`git config --global --add safe.directory '${at:-$PWD}'\` says so to git" ;;
    *[Pp]'ermission denied'*) next='let this user read it' ;;
    *'epository extension'* | *'epo version'* | *'storage format'*) next='a newer git reads it: install one' ;;
    *'bad config'*) next='put that line right' ;;
    *'not a git repository: '* | *'gitfile'*) next="${at:-$PWD}/.git leads to no repository: put that back, or repair a linked tree (\`git worktree repair\`)" ;;
    *'not a git repository'*)
        next='`git init` and a first commit make one'
        if [ -d "$at/.git" ]; then
            why="$at/.git is no repository" next='put it right, or remove it'
            [ -x "$at/.git" ] && [ -r "$at/.git/HEAD" ] || [ -x "$at/.git" -a ! -e "$at/.git/HEAD" ] || why="$at/.git cannot be read" next='let this user read it'
        fi
        ;;
    esac
    refuse "$T_SOURCE is in no git repository that can be used: $why" "$next; $in_place"
fi
own=$(git rev-parse --absolute-git-dir)
common=$(git rev-parse --path-format=absolute --git-common-dir)
# What is said of the tree holds for what is copied from there.
believe "$common" >>"$TMPDIR/safe"
at=$(realpath -e -- "$T_SOURCE")
tree_of "$common" "$at"
top=$tree
head=$(git rev-parse --verify --quiet 'HEAD^{commit}') ||
    refuse "the repository $top has no commit yet" 'commit what teammates are to begin with (`git commit`)'
for state in rebase-merge rebase-apply BISECT_LOG; do
    [ ! -e "$own/$state" ] || [ -e "$team" ] ||
        refuse "a rebase or bisection is under way in $top" 'finish it first: teammates begin at HEAD'
done
if git config --get-regexp '^(extensions\.partialclone|remote\..*\.promisor)$'; then
    refuse "$top is a partial clone: objects are missing that teammates would need" "run the team in a full clone; $in_place"
fi
if [ -e "$team" ]; then
    read_source
    [ "$source" = "$common" ] ||
        refuse "the checkouts of this team are of the repository $source, and $T_SOURCE is in another one" 'omit --workspace, or run a team of its own there'
else
    choose_name "$top"
    [ "$shown" = refs/remotes/team/integration ] ||
        say note "what is integrated is shown as \`${shown#refs/remotes/}\`: \`team/integration\` is taken in this repository"
    new=$T_HOME_OF_TEAM/new.git
    tidy() { rm -rf "$new"; }
    rm -rf "$new"
    # The scripts read names from files.
    GIT_DEFAULT_REF_FORMAT=files git clone --quiet --template= --bare --no-hardlinks --dissociate "$common" "$new"
    cd "$new"
    git cat-file -e "$head" || git fetch --quiet --no-tags "$top" HEAD
    git config --remove-section remote.origin
    # First all others go: there may be one below that name.
    git for-each-ref --format='delete %(refname)' | sed '\|^delete refs/tags/|d' | git update-ref --stdin
    git update-ref refs/heads/integration "$head"
    git symbolic-ref HEAD refs/heads/integration
    rm -rf hooks info/attributes info/grafts objects/info/alternates
    set_up_team .
    git config teamd.source "$common"
    git config teamd.shown "$shown"
    sync -f .
    cd /
    mv "$new" "$team"
fi
cd "$top"
say top "$top"
say source "$common"
say prefix "$([ "$at" = "$top" ] || printf '%s/' "${at#"$top"/}")"
files=$(changed --ignore-submodules=all | first 1) || files=
[ -z "$files" ] || say note "what is not committed in $top is not in the checkout"
