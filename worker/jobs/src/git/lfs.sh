# Begins scripts that bring contents of Git LFS from one repository to another.
# Shows which contents of Git LFS the blobs among these objects, one a line, are pointers to.
lfs_ids() {
    git cat-file --batch-check='%(objecttype) %(objectsize) %(objectname)' | awk '$1 == "blob" && $2 < 400 { print $3 }' |
        git cat-file --batch | LC_ALL=C sed -n 's/^oid sha256:\([0-9a-f]\{64\}\)$/\1/p' | sort -u
}
# Copies into a repository ($2) what it lacks of the contents of Git LFS in a commit ($1), from those of the team and of the user. Shows what
# it lacks still.
bring_lfs() {
    local from id at source to=$2/lfs/objects
    read_source
    git ls-tree -r --object-only "$1" | lfs_ids | while read -r id; do
        at=${id:0:2}/${id:2:2}
        for from in "$team/lfs/objects" "$source/lfs/objects"; do
            [ ! -e "$to/$at/$id" ] && [ -f "$from/$at/$id" ] || continue
            mkdir -p -- "$to/$at"
            cp --reflink=auto -- "$from/$at/$id" "$to/$at/$id.new"
            mv -f -- "$to/$at/$id.new" "$to/$at/$id"
        done
        [ -e "$to/$at/$id" ] || printf '%s\n' "$id"
    done
}
# Tells whether there are such contents. Most have none, and are not searched.
has_lfs() {
    [ -d "$team/lfs" ] || { read_source && [ -d "$source/lfs/objects" ]; }
}
