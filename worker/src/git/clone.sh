# Makes the checkout, unless it is there. A kill leaves a mark in what is not whole, which is removed before this begins.
cd "$T_WRITES"
mark=.git/teamd.new
if [ -e .git ]; then
    enter
    [ "$(git config --local teamd.name)" = "$T_NAME" ] || refuse "$T_WRITES is no checkout of $T_NAME" 'move it away'
    say made ''
    exit
fi
[ -z "$(ls -A)" ] ||
    refuse "$T_WRITES is not empty, and no checkout" 'move it away, or set `checkouts = "PATH"` in team.toml'
mkdir .new
git clone --quiet --template= --no-checkout --shared --branch integration "$team" .new/clone
cd .new/clone
mkdir -p .git/hooks .git/info
touch "$mark"
set_to() { git config --local "$1" "$2"; }
set_to user.name "$T_NAME"
set_to user.email "$T_NAME@team"
set_to branch.autoSetupMerge false
set_to commit.gpgSign false
set_to tag.gpgSign false
git config --local --add remote.origin.fetch '+refs/team/*:refs/team/*'
git config --local --remove-section branch.integration
set_to teamd.name "$T_NAME"
cd "$T_WRITES"
mv .new/clone/.git .git
rmdir .new/clone .new
enter
git checkout --quiet --no-track -b work refs/remotes/origin/integration
git branch --quiet -D integration || true
# Submodules come from local copies, in the user's tree.
(
    unset GIT_DIR GIT_WORK_TREE
    [ ! -f .gitmodules ] || git config --file .gitmodules --get-regexp '^submodule\..*\.path$' || true
) >"$TMPDIR/submodules"
while read -r key path; do
    name=${key#submodule.}
    name=${name%.path}
    if ! (
        unset GIT_DIR GIT_WORK_TREE
        [ -e "$T_TOP/$path/.git" ] && there=$(git -C "$T_TOP/$path" rev-parse --absolute-git-dir) &&
            git -c "submodule.$name.url=$there" submodule --quiet update --init -- "$path"
    ); then
        say note "the submodule $path is empty in the checkout: $T_TOP has no copy of it"
    fi
done <"$TMPDIR/submodules"
if git grep --quiet 'filter=lfs' -- ':(glob)**/.gitattributes'; then
    say note 'files of Git LFS are pointers in the checkout'
fi
rm "$mark"
say made 1
