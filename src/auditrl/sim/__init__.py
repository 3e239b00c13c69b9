"""The simulated world: targets, judges and auditors by rule, and the tiny policy that learns in it.

A model of the method; it is no evidence about real models.
"""
