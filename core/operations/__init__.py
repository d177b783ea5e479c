"""Operations on a gateway: check, back up, restore, prune and repair it."""
