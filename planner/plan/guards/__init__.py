"""Pure: what a plan must not do. Each refusal names its guard and the way out.

Guards run when a plan is made and again before it is applied.
"""
