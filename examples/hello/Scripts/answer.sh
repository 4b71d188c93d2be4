#!/bin/sh
# Answers one connection, which is our standard output.
exec cat /etc/hello/answer
