# Prints the targets of the links at some paths of a commit.
export GIT_DIR=$T_WRITES
cd /
while IFS= read -r path; do
    found=$(git --literal-pathspecs ls-tree --full-tree --format='%(objectmode) %(objectname)' "$T_COMMIT" -- "$path")
    [[ $found =~ ^120000\ ([0-9a-f]+)$ ]] || continue
    say link "$path"
    say target "$(git cat-file blob "${BASH_REMATCH[1]}")"
done <<<"$T_PATHS"
