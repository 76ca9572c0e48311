# The image of a binary that was built already; deploy/image.sh uses it where rust's image cannot be had. Its
# `runtime` is the stage of that name in deploy/Dockerfile, its context a folder with the binary alone.
FROM partita-runtime:latest
COPY partita /usr/local/bin/partita
