# Makes the clone of a teammate, in an empty directory that takes its place when it is whole.
cd "$T_WRITES"
clone_team
set_to() { git config --file .new/.git/config "$1" "$2"; }
set_to user.name "$T_NAME"
set_to user.email "$T_NAME@team"
set_to branch.autoSetupMerge false
set_to commit.gpgSign false
set_to tag.gpgSign false
# What no copy here has of Git LFS stays a pointer, also where the teammate checks it out.
set_to lfs.skipDownloadErrors true
mv .new/.git .git
rmdir .new
enter
if git grep --quiet 'filter=lfs' refs/remotes/origin/integration -- ':(glob)**/.gitattributes'; then
    missing=$(bring_lfs refs/remotes/origin/integration .git)
    [ -z "$missing" ] && judge git config filter.lfs.smudge || say note 'files of Git LFS are pointers in the checkout'
fi
judge git checkout --quiet --no-track -b work refs/remotes/origin/integration
changed >/dev/null
settle
fill_submodules "$T_TOP"
