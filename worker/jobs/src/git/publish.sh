# Fetches the integration branch into the user's repository, as a remote-tracking branch and nothing else.
believe_user
export GIT_DIR=$T_WRITES
cd /
publish "$T_TREE"
# What the user merges by hand needs the contents of Git LFS, too.
read_tip
if has_lfs; then bring_lfs "$tip" "$GIT_DIR"; fi
