import collections, functools
import simulation.test_connections_machine as m
C=collections.Counter()
import simulation.model as mo
for n in ("leave","trigger","_plan","_pull_forward"):
    def w(f,n):
        def g(self,*a,**k): C[n]+=1; return f(self,*a,**k)
        return g
    setattr(mo.Model,n,w(getattr(mo.Model,n),n))
oe=mo.Model.execute
def ex(self,job,now):
    if self.run and self.run.is_due(now): C["execute fail" if self.has_failed else "execute ok"]+=1
    oe(self,job,now)
mo.Model.execute=ex
orp=mo.Model.reap
def rp(self,job,now):
    b=self.run and self.run.lapses_at; orp(self,job,now)
    if b and (not self.run or not self.run.lapses_at): C[f"reap"]+=1
mo.Model.reap=rp
ok=m.SimulatedNetwork.kill
def k(self,*a): C["kill"]+=1; return ok(self,*a)
m.SimulatedNetwork.kill=k
def test_x(database_url, databases):
    m.test_connections_behave_whatever_is_done_to_them(database_url, databases); print(C)
