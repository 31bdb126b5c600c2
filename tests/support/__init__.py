"""What tests share: scratch homes, real daemons, real repositories, the agent rig."""
