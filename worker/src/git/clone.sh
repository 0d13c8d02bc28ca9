# Makes the clone of a teammate, in an empty directory that takes its place when it is whole.
cd "$T_WRITES"
git clone --quiet --template= --no-checkout --shared --branch integration "$team" .new
mkdir -p .new/.git/hooks
set_to() { git -C .new config --local "$1" "$2"; }
set_to user.name "$T_NAME"
set_to user.email "$T_NAME@team"
set_to branch.autoSetupMerge false
set_to commit.gpgSign false
set_to tag.gpgSign false
git -C .new config --local --add remote.origin.fetch '+refs/team/*:refs/team/*'
git -C .new config --local --remove-section branch.integration
set_to teamd.name "$T_NAME"
mv .new/.git .git
rmdir .new
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
