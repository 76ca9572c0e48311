# Sourced by the scripts that run Python tests, from the repository's root.
#
# python_venv NAME REQUIREMENTS prints the folder of a virtual environment under the target directory that has
# exactly these packages, and makes it when it is missing or was made for others.
python_venv() {
  local venv="${CARGO_TARGET_DIR:-target}/$1-venv" requirements="$2"
  local stamp="$venv/requirements.txt"
  # Joined by &&: a command substitution does not end at the first command that fails.
  cmp -s "$requirements" "$stamp" || {
    rm -rf "$venv" &&
      python3 -m venv "$venv" &&
      "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2 &&
      cp "$requirements" "$stamp"
  } && printf '%s\n' "$venv"
}
