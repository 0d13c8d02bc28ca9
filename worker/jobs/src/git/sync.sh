# Takes the user's branch into the team repository, as work to be integrated.
believe_user
read_source
cd "$T_SOURCE"
branch=$(git symbolic-ref --quiet --short HEAD) || branch=HEAD
commit=$(git rev-parse --verify --quiet "${T_INTO:-HEAD}^{commit}") || refuse "there is no branch ${T_INTO:-HEAD}" '`git branch` lists them'
export GIT_DIR=$T_WRITES
cd /
if git merge-base --is-ancestor "$commit" refs/heads/integration; then
    say commit ''
else
    git fetch --quiet --no-tags --update-shallow --no-write-fetch-head "$source" "+$commit:refs/team/sync"
    say commit "$commit"
fi
say branch "${T_INTO:-$branch}"
