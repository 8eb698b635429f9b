# The commands of a checkout; each does the set-up that it needs.
.PHONY: help demo roles test check docs bench clean

help:
	@echo "make demo    train DeepFM on two ranks of this machine"
	@echo "make roles   train with data nodes, embedding nodes and two trainers"
	@echo "make test    native, unit and two-rank tests"
	@echo "make check   formatting, linting, types, architecture"
	@echo "make docs    the documentation as a site, in build/site"
	@echo "make bench   a first look at the speed in five minutes; scripts/bench NAME for more"
	@echo "make clean   remove what was built here (.venv and the cached Horovod wheel stay)"

demo:
	@scripts/demo

roles:
	@scripts/roles

test:
	@scripts/test

check:
	@scripts/check

docs:
	@scripts/docs

bench:
	@scripts/bench

clean:
	rm -rf build dist tfhybrid.egg-info demo-output .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f tfhybrid/ops/*.so tfhybrid/ops/_build_info.json
