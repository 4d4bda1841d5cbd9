"""What every firmware folder gets: the runtime header, programs for the boards, a Makefile."""
