# Install rules and package configuration.
