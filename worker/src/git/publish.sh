# Fetches the integration branch into the user's repository, as a remote-tracking branch and nothing else.
believe_user
export GIT_DIR=$T_WRITES
cd /
publish "$T_TREE"
