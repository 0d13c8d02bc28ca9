# Merges a commit with the tip of the integration branch, without a working tree, and says what that changes.
export GIT_DIR=$T_WRITES
cd /
prefix_of_team
say prefix "$prefix"
read_tip
merged=$TMPDIR/merged changed=$TMPDIR/changed
# What attributes say of a merge is what the integration branch says; before git 2.41 they are not read here.
code=0
GIT_ATTR_SOURCE=$tip git merge-tree --write-tree --no-messages --name-only -z "$tip" "$T_COMMIT" >"$merged" || code=$?
if [ "$code" -gt 1 ]; then
    ! git merge-base "$tip" "$T_COMMIT" || false
    say conflict 'all files: it has no commit in common with the integration branch'
    exit
fi
{
    IFS= read -r -d '' tree
    while IFS= read -r -d '' file; do
        [ -z "$file" ] || say conflict "$file"
    done
} <"$merged"
[ "$code" = 0 ] || exit 0
git diff-tree -r --no-renames --raw -z "$tip" "$tree" >"$changed"
if [ ! -s "$changed" ] && git merge-base --is-ancestor "$T_COMMIT" "$tip"; then
    commit=$tip
else
    export GIT_AUTHOR_NAME=teamd GIT_AUTHOR_EMAIL=teamd@team GIT_COMMITTER_NAME=teamd GIT_COMMITTER_EMAIL=teamd@team
    commit=$(git commit-tree "$tree" -p "$tip" -p "$T_COMMIT" -m "$T_MESSAGE")
fi
# First: no name of a file passes for one of these.
say merged "$commit"
say tip "$tip"
while IFS= read -r -d '' modes && IFS= read -r -d '' file; do
    if [[ ${modes:0:14} == *160000* ]]; then say submodule "$file"; else say changed "$file"; fi
done <"$changed"
