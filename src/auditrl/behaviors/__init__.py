"""Hidden behaviors, their scenario seeds, the persona block, and the commands that list, check and extend them."""
