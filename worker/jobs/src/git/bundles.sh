# Begins scripts for what crosses between home and a host.
# A name need not be UTF-8.
export LC_ALL=C
# Lists all names of a repository ($1), and the commits where history is cut off: the first lines of a bundle.
all_names() {
    [ ! -e "$1/shallow" ] || sed 's/^/shallow /' "$1/shallow"
    git --git-dir="$1" for-each-ref --format='%(objectname) %(refname) %(symref)'
}
hash_of() { sha256sum <"$1" | cut -c 1-64; }
