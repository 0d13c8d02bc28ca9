# Finds where the user works.
believe_user
users_tree
cd "$tree" && git rev-parse --git-dir || refuse "$tree is no git repository any more" 'put it back, and try again'
say tree "$tree"
say source "$source"
