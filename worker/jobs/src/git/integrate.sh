# Moves the integration branch, if it is where it was when the merged tree was checked. What is moved already stays so.
export GIT_DIR=$T_WRITES
cd /
if git update-ref refs/heads/integration "$T_COMMIT" "$T_OLD"; then
    say moved 1
elif tip=$(git rev-parse refs/heads/integration) && [ "$tip" = "$T_OLD" ]; then
    false
elif git merge-base --is-ancestor "$T_COMMIT" "$tip"; then
    say moved 1
else
    say moved 0
fi
prefix_of_team
say source "$source"
say tree "$tree"
say prefix "$prefix"
