# Begins scripts that make a team repository.
# Writes its settings: it never tidies itself up, and examines what it takes in.
set_up_team() {
    git config --file "$1/config" gc.auto 0
    git config --file "$1/config" maintenance.auto false
    git config --file "$1/config" fetch.fsckObjects true
    git config --file "$1/config" core.fsync all
}
