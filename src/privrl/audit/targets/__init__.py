"""What is attacked, module by module; `privrl.audit.catalogue` lists it."""
